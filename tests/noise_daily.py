"""Medicine, shops, sports, weather, code, banks, tables, school, kitchens and history: the questions of tests/noise.py
that the rules of sql_agent/curation were chosen on."""

# ruff: noqa: E501
from __future__ import annotations

import random
import re

from pypinyin import lazy_pinyin

from tests.noise import Noise

COMMON = [bytes([high, low]).decode("gb2312") for high in range(0xB0, 0xD7) for low in range(0xA1, 0xFF)]
SOUNDS: dict[str, list[str]] = {}
for char in COMMON:
    SOUNDS.setdefault(lazy_pinyin(char)[0], []).append(char)


def typo_en(text: str, dice: random.Random) -> str:
    """Any letter more, less, other or exchanged with the next, in a word of four or more."""
    word = dice.choice(list(re.finditer(r"[A-Za-z]{4,}", text)))
    at = dice.randrange(word.start() + (len(word[0]) > 4), word.end() - 1)
    letter = dice.choice("abcdefghijklmnopqrstuvwxyz")
    ways = (
        text[:at] + text[at + 1] + text[at] + text[at + 2 :],
        text[:at] + text[at + 1 :],
        text[:at] + letter + text[at:],
        text[:at] + letter + text[at + 1 :],
    )
    return dice.choice(ways)


def typo_zh(text: str, dice: random.Random) -> str:
    """A character of the same sound, one less, one twice, or two that change places."""
    places = [match.start() for match in re.finditer(r"(?<=[\u4e00-\u9fff])[\u4e00-\u9fff](?=[\u4e00-\u9fff])", text)]
    at = dice.choice(places)
    same = [char for char in SOUNDS.get(lazy_pinyin(text[at])[0], ()) if char != text[at]]
    ways = [
        text[:at] + text[at + 1] + text[at] + text[at + 2 :],
        text[:at] + text[at + 1 :],
        text[:at] + text[at] + text[at:],
    ]
    return text[:at] + dice.choice(same) + text[at + 1 :] if same and dice.random() < 0.6 else dice.choice(ways)


ENGLISH = Noise(
    asked=(
        "What is the maximum daily dose of {drug} | for a child of {n} years?",
        "Can I drink coffee | while I am taking {drug}?",
        "How many days should a patient with {illness} rest | before going back to work?",
        "What are the side effects of {drug} | in pregnant women?",
        "Is {drug} stronger than {drug2}?",
        "Which doctor treats {illness}?",
        "Does {illness} spread | through contaminated water?",
        "My order of {n} {product}s has not arrived after {m} days. | What should I do?",
        "Do you ship {product}s from {city} to {city2}?",
        "What is the price of the red {product} | in your store in {city}?",
        "Can I return a {product} | without the original box?",
        "Is there a discount | when I buy {n} {product}s?",
        "How many goals did {player} score | in {year}?",
        "Who won the final | between {team} and {team2} in {year}?",
        "How many games did {team} lose | at home last season?",
        "Which player of {team} has the most assists | in {year}?",
        "Did {team} beat {team2} | in the last match?",
        "Will it rain in {city} | tomorrow morning?",
        "What was the highest temperature in {city} | in {month} {year}?",
        "How strong will the wind be | on the coast near {city}?",
        "How many sunny days per year does {city} have?",
        "How do I convert a {type} to a {type2} in {code}?",
        "Why does my {code} program crash | when the list has more than {n} elements?",
        "What is the fastest way to sort {n} numbers | in {code}?",
        "How can I remove duplicate rows | from a table with {n} columns?",
        "Which library should I use | to parse dates in {code}?",
        "What does error {n} mean | when I install {code} on Windows?",
        "What is the interest rate of a savings account | at {bank}?",
        "How do I transfer {n} dollars from {bank} to {bank2}?",
        "Can I withdraw more than {n} euros per day | with my debit card abroad?",
        "How long does it take | to get a mortgage approved by {bank}?",
        "What is the monthly fee of a credit card | from {bank}?",
        "How many customers older than {n} bought a {product} | in {year}?",
        "List the employees of the sales department | who earn less than {n} dollars.",
        "What is the average salary of managers | in {city}?",
        "Show the total revenue of every branch | in {month}.",
        "Tom has {n} apples and buys {m} more. | How many apples does he have now?",
        "A train travels {n} kilometers in {m} hours. | What is its average speed?",
        "A shirt costs {n} dollars and is reduced by {m} percent. | What is the new price?",
        "How many minutes do I have to boil {food} | in salted water?",
        "What temperature should the oven have | to bake {food}?",
        "Can I replace butter with oil | in a recipe for {food}?",
        "How many calories are in {n} grams of {food}?",
        "When was the battle of {battle} fought?",
        "Which king ruled {land} | before the revolution?",
        "How many soldiers died | in the battle of {battle}?",
        "What language do people speak | in the north of {land}?",
        "What is the population of the capital of {land}?",
        "When does the next bus to {city} leave | on {day}?",
        "Is the {product} waterproof | up to {n} meters?",
        "What are the symptoms of {illness} | in elderly people?",
        "How many vacation days do new employees get | after {n} months at {bank}?",
    ),
    pools={
        "drug": ["amoxicillin", "ibuprofen", "warfarin", "metformin", "zolpidem", "rivastigmine", "ondansetron", "mesalazine"],
        "illness": ["measles", "asthma", "cholera", "shingles", "scabies", "hepatitis A", "pneumonia"],
        "product": ["blender", "jacket", "headphone", "watch", "suitcase", "keyboard", "lamp"],
        "city": ["Paris", "Chicago", "Munich", "Sydney", "Toronto", "Madrid", "Shanghai", "Naples"],
        "player": ["Messi", "Kane", "Ronaldo", "Modric", "Salah", "Mbappe"],
        "team": ["Arsenal", "Juventus", "Barcelona", "Liverpool", "Ajax", "Benfica"],
        "year": ["1998", "2006", "2010", "2019", "2022"],
        "month": ["January", "February", "June", "July", "September", "November"],
        "day": ["Monday", "Tuesday", "Friday", "Sunday"],
        "type": ["string", "list", "dictionary", "tuple", "float"],
        "code": ["Python", "Java", "Rust", "Kotlin", "Ruby"],
        "bank": ["HSBC", "Barclays", "Citibank", "Santander", "Lloyds"],
        "food": ["potatoes", "lasagna", "salmon", "brownies", "pumpkin", "chicken"],
        "battle": ["Waterloo", "Hastings", "Verdun", "Gettysburg", "Marathon"],
        "land": ["France", "Spain", "Sweden", "Italy", "Iran", "Russia"],
    },
    numbers=(3, 4, 6, 8, 11, 14, 20, 35, 50, 75, 100, 250),
    words={
        "synonym": {
            "maximum": "highest", "daily": "per day", "dose": "dosage", "child": "kid", "drink": "have", "taking": "using", "rest": "stay in bed", "going back": "returning", "work": "their job", "side effects": "adverse effects", "pregnant": "expecting",
            "stronger": "more powerful", "doctor": "physician", "treats": "cures", "spread": "get transmitted", "contaminated": "dirty", "order": "purchase", "arrived": "been delivered", "ship": "deliver", "price": "cost", "store": "shop", "return": "send back",
            "box": "packaging", "discount": "price reduction", "buy": "purchase", "score": "shoot", "won": "was the winner of", "games": "matches", "match": "game", "beat": "defeat", "lose": "get defeated in", "most": "largest number of", "rain": "be rainy", "highest": "maximum", "strong": "powerful",
            "coast": "shore", "per year": "a year", "convert": "turn", "crash": "fail", "elements": "items", "fastest": "quickest", "way": "method", "remove": "delete", "duplicate": "repeated", "library": "package", "parse": "read", "mean": "signify", "install": "set up", "interest rate": "rate of interest",
            "transfer": "send", "withdraw": "take out", "abroad": "overseas", "get": "have", "approved": "accepted", "monthly": "per month", "fee": "charge", "customers": "clients", "bought": "purchased", "employees": "staff", "earn": "make", "average": "mean", "salary": "pay", "Show": "Display", "List": "Name", "total": "overall",
            "revenue": "income", "branch": "office", "buys": "purchases", "travels": "goes", "costs": "is priced at", "reduced": "discounted", "boil": "cook", "replace": "substitute", "battle": "fight", "ruled": "reigned over", "soldiers": "troops", "died": "were killed", "speak": "use", "population": "number of inhabitants",
            "leave": "depart", "waterproof": "water resistant", "symptoms": "signs", "elderly": "old", "vacation": "holiday", "new employees": "newcomers", "How can I": "How do I", "should I use": "do I need", "has not": "did not", "What should I do": "What can I do", "women": "ladies", "Tom has": "Tom owns", "quickest": "fastest",
        },
        "abbreviation": {
            "maximum": "max", "years": "yrs", "patient": "pt", "doctor": "dr", "without": "w/o", "with": "w/", "temperature": "temp", "January": "Jan", "February": "Feb", "September": "Sept", "November": "Nov", "Monday": "Mon", "Tuesday": "Tue", "Friday": "Fri", "program": "prog", "numbers": "nums", "library": "lib", "account": "acct", "dollars": "USD", "euros": "EUR",
            "credit card": "CC", "department": "dept", "employees": "empl.", "average": "avg", "kilometers": "km", "hours": "h", "percent": "%", "minutes": "min", "grams": "g", "meters": "m", "calories": "kcal", "months": "mths", "customers": "cust.", "per day": "/day", "number of": "no. of", "managers": "mgrs", "dictionary": "dict", "people": "ppl", "Windows": "Win", "between": "btw", "and": "&", "because": "bc", "tomorrow": "tmrw", "morning": "am", "pregnant": "preg.", "mortgage": "mtg", "elements": "elems", "seconds": "s",
        },
        "switch": {
            "dose": "剂量", "coffee": "咖啡", "side effects": "副作用", "pregnant women": "孕妇", "doctor": "医生", "water": "水", "order": "订单", "price": "价格", "store": "商店", "box": "盒子", "discount": "折扣", "goals": "进球", "final": "决赛", "games": "比赛", "player": "球员", "rain": "下雨", "temperature": "温度", "wind": "风", "coast": "海岸", "program": "程序", "list": "列表",
            "numbers": "数字", "table": "表", "columns": "列", "dates": "日期", "error": "错误", "savings": "储蓄", "interest rate": "利率", "debit card": "借记卡", "mortgage": "房贷", "credit card": "信用卡", "customers": "顾客", "employees": "员工", "salary": "工资", "revenue": "收入", "branch": "分店", "apples": "苹果", "train": "火车", "speed": "速度", "shirt": "衬衫", "oven": "烤箱", "butter": "黄油", "recipe": "食谱", "calories": "卡路里",
            "battle": "战役", "king": "国王", "revolution": "革命", "soldiers": "士兵", "language": "语言", "population": "人口", "capital": "首都", "bus": "公交车", "symptoms": "症状", "vacation": "假期", "last season": "上赛季", "tomorrow": "明天", "waterproof": "防水", "transfer": "转账", "patient": "病人",
        },
        "contraction": {"What is": "What's", "What are": "What're", "I am": "I'm", "has not": "hasn't", "How do I": "How'd I", "Who won": "Who's won", "Is there": "Is there", "does not": "doesn't", "should I": "should i", "is reduced": "'s reduced", "Tom has": "Tom's got", "he have": "he've", "going to": "gonna", "What was": "What's", "Will it": "Will't", "How long does": "How long's", "When was": "When's", "What does": "What's", "Why does": "Why's", "who earn": "who'd earn"},
        "attribute": {
            "maximum": "minimum", "daily": "weekly", "child": "dog", "coffee": "wine", "before going": "after going", "side effects": "benefits", "pregnant": "young", "stronger": "cheaper", "spread": "disappear", "arrived": "expired", "ship": "buy", "price": "weight", "red": "blue", "return": "repair", "without": "with", "buy": "sell", "goals": "points", "score": "miss", "won": "refereed", "lose": "win", "at home": "away", "most": "fewest",
            "tomorrow": "yesterday", "morning": "evening", "rain": "snow", "highest": "lowest", "temperature": "humidity", "strong": "warm", "wind": "sun", "coast": "mountains", "sunny": "rainy", "crash": "freeze", "more than": "fewer than", "less than": "more than", "fastest": "shortest", "sort": "sum", "duplicate": "empty", "rows": "columns", "remove": "count", "parse": "format", "dates": "addresses", "install": "uninstall", "Windows": "Linux", "savings": "checking", "interest rate": "opening fee",
            "withdraw": "deposit", "debit": "credit", "abroad": "online", "mortgage": "loan", "approved": "cancelled", "monthly": "yearly", "fee": "limit", "credit card": "debit card", "older": "younger", "bought": "returned", "sales": "marketing", "average": "median", "salary": "age", "managers": "drivers", "revenue": "cost", "total": "average", "buys": "eats", "speed": "delay", "boil": "fry", "salted": "cold", "butter": "sugar", "calories": "vitamins", "king": "queen", "before the": "after the", "soldiers": "horses", "died": "deserted",
            "north": "south", "population": "area", "capital": "president", "next": "last", "leave": "arrive", "symptoms": "causes", "elderly": "young", "vacation": "sick", "new employees": "managers", "waterproof": "fireproof", "apples": "pears", "treats": "studies",
        },
        "unit": {"years": "months", "days": "weeks", "hours": "minutes", "kilometers": "miles", "dollars": "euros", "euros": "dollars", "percent": "dollars", "minutes": "seconds", "grams": "ounces", "meters": "feet", "months": "years", "per day": "per week", "per year": "per month"},
        "negation": {"Can I": "Can't I", "should a patient": "should a patient not", "Is ": "Isn't ", "Does ": "Doesn't ", "has not arrived": "has arrived", "Do you": "Don't you", "did ": "did not ", "has the most": "does not have the most", "Will it": "Won't it", "does my": "doesn't my", "should I": "shouldn't I", "who earn": "who do not earn", "do people speak": "do people not speak", "I am taking": "I am not taking"},
    },
    before=("Hi, ", "Hello! ", "Good morning, ", "Please tell me: ", "Could you tell me, ", "I have a question. ", "Sorry, ", "Hey guys, quick question: ", "I want to know: ", "Would you be so kind as to tell me: ", "Hope you are well. "),
    after=(" Thanks!", " Thank you very much.", " Please.", " Cheers.", " Thanks for your help in advance!", " I'd really appreciate an answer.", " pls"),
    typo=typo_en,
    chinese=False,
    symmetric=frozenset(["team"]),
)  # fmt: skip

CHINESE = Noise(
    asked=(
        "{n}岁的儿童|每天最多能服用多少{drug}？", "服用{drug}期间|可以喝咖啡吗？", "{illness}患者要休息几天|才能上班？", "{drug}对孕妇|有什么副作用？", "{drug}的效果比{drug2}强吗？", "{illness}应该挂哪个科？", "{illness}会通过|受污染的水传播吗？", "我订的{n}个{product}过了{m}天还没有到，|该怎么办？", "你们能把{product}从{city}寄到{city2}吗？", "你们{city}店里|红色的{product}多少钱？",
        "没有原包装|可以退{product}吗？", "买{n}个{product}|有折扣吗？", "{player}在{year}年|进了多少个球？", "{year}年的决赛|{team}和{team2}谁赢了？", "上赛季{team}|主场输了多少场？", "{year}年{team}|助攻最多的球员是谁？", "上一场比赛|{team}战胜{team2}了吗？", "明天早上|{city}会下雨吗？", "{year}年{month}|{city}的最高气温是多少？", "{city}附近的海岸|风会有多大？",
        "{city}每年|有多少个晴天？", "在{code}里|怎么把{type}转换成{type2}？", "列表超过{n}个元素时|为什么我的{code}程序会崩溃？", "用{code}|给{n}个数字排序最快的方法是什么？", "怎么从{n}列的表里|删除重复的行？", "在{code}中解析日期|应该用哪个库？", "在Windows上安装{code}时|错误{n}是什么意思？", "{bank}储蓄账户的利率|是多少？", "怎么从{bank}转{n}元到{bank2}？", "在国外用借记卡|一天能取超过{n}欧元吗？",
        "{bank}批准房贷|需要多长时间？", "{bank}信用卡的年费|是多少？", "{year}年|购买{product}的{n}岁以上的客户有多少？", "列出销售部门|工资低于{n}元的员工。", "{city}的经理|平均工资是多少？", "显示{month}|每个分店的总收入。", "小明有{n}个苹果，又买了{m}个，|现在他有多少个苹果？", "火车{m}小时行驶{n}公里，|平均速度是多少？", "一件衬衫{n}元，降价百分之{m}，|新的价格是多少？", "{food}在盐水里|要煮多少分钟？",
        "烤{food}|烤箱需要多少度？", "做{food}时|可以用油代替黄油吗？", "{n}克{food}|含有多少卡路里？", "{battle}战役|是什么时候发生的？", "革命之前|统治{land}的国王是谁？", "{battle}战役中|有多少士兵死亡？", "{land}北部的人|说什么语言？", "{land}首都的人口|是多少？", "{day}去{city}的下一班公交车|什么时候出发？", "这款{product}|能防水{n}米吗？",
        "老年人得了{illness}|有哪些症状？", "新员工在{bank}工作{n}个月后|有多少天年假？",
    ),
    pools={
        "drug": ["阿莫西林", "布洛芬", "华法林", "二甲双胍", "唑吡坦", "利斯的明", "昂丹司琼", "美沙拉嗪"], "illness": ["麻疹", "哮喘", "霍乱", "带状疱疹", "疥疮", "甲肝", "肺炎"], "product": ["搅拌机", "夹克", "耳机", "手表", "行李箱", "键盘", "台灯"], "city": ["巴黎", "芝加哥", "慕尼黑", "悉尼", "多伦多", "马德里", "上海", "成都"],
        "player": ["梅西", "凯恩", "罗纳尔多", "莫德里奇", "萨拉赫", "武磊"], "team": ["阿森纳", "尤文图斯", "巴塞罗那", "利物浦", "阿贾克斯", "山东泰山"], "year": ["1998", "2006", "2010", "2019", "2022"], "month": ["一月", "二月", "六月", "七月", "九月", "十一月"], "day": ["周一", "周二", "周五", "周日"], "type": ["字符串", "列表", "字典", "元组", "浮点数"],
        "code": ["Python", "Java", "Rust", "Kotlin", "Ruby"], "bank": ["汇丰银行", "工商银行", "花旗银行", "招商银行", "建设银行"], "food": ["土豆", "千层面", "三文鱼", "南瓜", "鸡肉", "布朗尼"], "battle": ["滑铁卢", "赤壁", "凡尔登", "葛底斯堡", "马拉松"], "land": ["法国", "西班牙", "瑞典", "意大利", "伊朗", "俄罗斯"],
    },
    numbers=(3, 4, 6, 8, 11, 14, 20, 35, 50, 75, 100, 250),
    words={
        "synonym": {
            "儿童": "小孩", "每天": "一天", "最多": "至多", "服用": "吃", "期间": "的时候", "可以": "能", "喝": "饮用", "患者": "病人", "休息": "歇", "上班": "工作", "副作用": "不良反应", "效果": "疗效", "强": "厉害", "传播": "传染", "受污染": "不干净", "订": "购买", "到": "送到", "怎么办": "如何处理", "寄": "发货", "店里": "门店", "多少钱": "什么价格", "包装": "盒子", "退": "退货", "买": "购买", "折扣": "优惠",
            "进了": "打进", "赢": "获胜", "输了": "负了", "战胜": "击败", "早上": "早晨", "最高": "最大", "气温": "温度", "附近": "周边", "每年": "一年", "怎么": "如何", "转换": "转化", "超过": "多于", "崩溃": "闪退", "方法": "办法", "最快": "最迅速", "删除": "去掉", "重复": "相同", "应该": "应当", "意思": "含义", "利率": "利息", "转": "汇", "国外": "境外", "取": "提取", "批准": "通过", "需要": "要", "多长时间": "多久",
            "客户": "顾客", "列出": "列举", "工资": "薪水", "低于": "少于", "员工": "职员", "显示": "展示", "收入": "营收", "现在": "目前", "行驶": "走", "降价": "减价", "价格": "售价", "煮": "烧", "代替": "替代", "含有": "包含", "卡路里": "热量", "发生": "爆发", "统治": "管理", "死亡": "阵亡", "说": "讲", "公交车": "巴士", "出发": "发车", "老年人": "老人", "症状": "表现", "年假": "带薪假", "战役": "会战", "哪些": "什么",
        },
        "abbreviation": {"公里": "km", "小时": "h", "克": "g", "分钟": "min", "米吗": "m吗", "百分之": "%", "平均工资": "均薪", "公交车": "公交", "信用卡": "信卡", "工商银行": "工行", "建设银行": "建行", "招商银行": "招行", "销售部门": "销售部", "欧元": "EUR", "元的员工": "RMB的员工", "搅拌机": "搅拌", "笔记本": "本", "山东泰山": "泰山", "尤文图斯": "尤文", "巴塞罗那": "巴萨", "俄罗斯": "俄国", "意大利": "意国", "行李箱": "箱", "卡路里": "大卡", "副作用": "副反应", "客户": "客", "程序": "程式", "平均速度": "均速", "字符串": "串", "浮点数": "浮点"},
        "switch": {"儿童": "child", "咖啡": "coffee", "患者": "patient", "副作用": "side effect", "孕妇": "pregnant women", "包装": "package", "折扣": "discount", "决赛": "final", "主场": "home", "助攻": "assist", "比赛": "match", "下雨": "rain", "气温": "temperature", "海岸": "coast", "程序": "program", "列表": "list", "数字": "number", "排序": "sort", "删除": "delete", "日期": "date", "错误": "error", "利率": "interest rate", "借记卡": "debit card", "房贷": "mortgage", "信用卡": "credit card", "客户": "customer", "员工": "employee", "工资": "salary", "收入": "revenue", "苹果": "apple", "火车": "train", "速度": "speed", "衬衫": "shirt", "烤箱": "oven", "黄油": "butter", "革命": "revolution", "国王": "king", "士兵": "soldier", "语言": "language", "人口": "population", "首都": "capital", "公交车": "bus", "防水": "waterproof", "症状": "symptom", "经理": "manager", "安装": "install"},
        "contraction": {"什么时候": "啥时候", "什么": "啥", "怎么办": "咋办", "怎么": "咋", "为什么": "为啥", "没有": "没", "可以": "可", "应该": "该", "多少": "几", "需要": "需", "多长时间": "多久", "哪个": "哪", "是多少": "多少", "你们": "你", "哪些": "啥", "还没有": "还没", "一天": "天"},
        "attribute": {"最多": "最少", "儿童": "孕妇", "咖啡": "红酒", "上班": "出院", "副作用": "好处", "效果": "价格", "传播": "消失", "红色": "蓝色", "多少钱": "多重", "没有原包装": "有原包装", "退": "修", "决赛": "半决赛", "赢": "输", "输了": "赢了", "主场": "客场", "助攻": "进球", "最多的": "最少的", "早上": "晚上", "明天": "昨天", "下雨": "下雪", "最高": "最低", "气温": "湿度", "风": "浪", "晴天": "雨天", "超过": "不到", "崩溃": "卡住", "最快": "最省内存", "排序": "求和", "重复": "空白", "删除": "统计", "日期": "地址", "安装": "卸载", "储蓄": "结算", "利率": "手续费", "借记卡": "信用卡", "取": "存", "房贷": "车贷", "批准": "取消", "年费": "额度", "以上": "以下", "购买": "退回", "销售": "市场", "低于": "高于", "平均": "最高", "工资": "年龄", "经理": "司机", "收入": "成本", "买了": "吃了", "盐水": "冷水", "煮": "炸", "黄油": "白糖", "卡路里": "维生素", "国王": "王后", "之前": "之后", "士兵": "战马", "死亡": "逃跑", "北部": "南部", "语言": "货币", "人口": "面积", "下一班": "末班", "出发": "到达", "老年": "青年", "症状": "病因", "年假": "病假", "防水": "防火", "国外": "国内"},
        "unit": {"天": "周", "小时": "分钟", "公里": "英里", "分钟": "小时", "克": "两", "米": "厘米", "欧元": "美元", "元的": "美元的", "元，": "美元，", "元到": "美元到", "每年": "每月", "个月": "年", "每天": "每周", "岁": "个月"},
        "negation": {"可以": "不可以", "最多能": "最多不能", "会通过": "不会通过", "还没有到": "已经到", "你们能": "你们不能", "有折扣": "没有折扣", "会下雨": "不会下雨", "强吗": "不强吗", "有什么": "没有什么", "会崩溃": "不会崩溃", "能取": "不能取", "战胜": "没战胜", "能防水": "不能防水", "应该": "不应该"},
    },
    before=("你好，", "您好，请问", "请问", "想问一下，", "麻烦问下，", "有个问题想请教：", "不好意思，", "大家好，我想知道", "能告诉我", "劳驾，", "帮我看看，"),
    after=("谢谢！", "谢谢您。", "多谢！", "非常感谢！", "求回答。", "麻烦了。", "在线等，急！"),
    typo=typo_zh,
    chinese=True,
    symmetric=frozenset(["team"]),
)  # fmt: skip
